"""Surveys: times of all frozen kernels on drawn problems, models fitted to them, and how far choices are behind the fastest kernel."""
