"""Libraries of frozen kernels, loaded and launched by address; the registry decides which of them serves a call."""
