"""The damage campaign: one file is harmed, then somebody reads, archives, compacts, copies or restores.

Whoever reads gets what was acknowledged, at its offset and in its leader epoch, or an error: never another record, and
nothing is left out without an error. In a cluster the damaged copy is replaced from a good one.

- `harms`: what can become of a file
- `model`: what was acknowledged, and the one check of what readers get
- `table`: the axes, and every case
- `one_log`, `source`, `bucket`, `cluster`, `metadata`: the places where a case happens
- `test_campaign`: a sample with every test run, all of it with the slow tests
"""
