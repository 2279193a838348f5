"""The console in a real browser (Chromium), beside a real broker; what it shows is kept as pictures."""
