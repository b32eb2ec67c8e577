"""The guest kernel: User-Mode Linux with a virtual clock, built from Debian's kernel source."""
