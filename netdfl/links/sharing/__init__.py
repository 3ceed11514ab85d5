"""Links whose rates flows share: all messages that cross a link at the same time get max-min fair rates."""
