"""The underlay: sites joined by core links, nodes placed on sites, and the routes of their messages."""
