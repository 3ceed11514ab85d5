# Five cities and the lines between them, made up for this example: delays in ms as light in a fibre takes, and rates.
graph [
  node [ id 0 label "paris" Latitude 48.86 Longitude 2.35 ]
  node [ id 1 label "zurich" Latitude 47.38 Longitude 8.54 ]
  node [ id 2 label "milan" Latitude 45.46 Longitude 9.19 ]
  node [ id 3 label "vienna" Latitude 48.21 Longitude 16.37 ]
  node [ id 4 label "berlin" Latitude 52.52 Longitude 13.4 ]
  edge [ source 0 target 1 latency "3ms" bandwidth "100Mbit" ]
  edge [ source 1 target 2 latency "2ms" bandwidth "200Mbit" ]
  edge [ source 1 target 3 latency "4ms" bandwidth "200Mbit" ]
  edge [ source 0 target 4 latency "6ms" bandwidth "200Mbit" ]
  edge [ source 4 target 3 latency "4ms" bandwidth "200Mbit" ]
]
