"""Ways of splitting attention over devices. So far: none, everything on one."""
