"""RecordBatch v2: header view, validation, columns, compression."""
