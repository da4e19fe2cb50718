"""Building blocks of algorithms at the station."""
