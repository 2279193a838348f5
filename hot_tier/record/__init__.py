"""RecordBatch v2, the format of everything stored and sent. `docs/formats/record-batch.md` draws it.

- `batch`: the header: view, in-place assignment, walking a run of batches
- `crc`: CRC-32C; `crc_tables`: how those of parts add up
- `compression`: the four codecs, with a cap that holds while decompressing
- `recompression`: a batch with another codec
- `validate`: what a produced batch must satisfy before it is appended
- `records`: a few records as Python values, both ways
- `columns`: many records as Arrow columns, both ways; `column_decoder` and `column_encoder` are its two halves
- `kernels`: the compiled loops behind `validate` and `columns`
"""
