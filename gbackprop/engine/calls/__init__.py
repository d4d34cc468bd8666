"""Small calls as programs: what is done to arrays, written down once and run for other numbers."""
