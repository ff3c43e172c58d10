"""Libraries of frozen kernels, loaded and launched by address; which of them serves a call is the registry's."""
