"""Rendering: turns results into responses; shared by several routes."""
