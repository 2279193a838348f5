"""Several brokers of one machine as one service: `tierlog serve --workers N`. Why: docs/decisions/workers.md.

layout       where each worker keeps its data; what else may be in these directories
plan         which workers there are, where each listens, and their settings
supervisor   starts them, starts again what ended, stops all; owns the metadata unless etcd has it
worker       the process of one broker
"""
