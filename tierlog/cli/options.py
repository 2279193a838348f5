"""Options that several commands share."""

from typing import Annotated

import typer

DEFAULT_SERVER = ""
"""As `tierlog.access` finds it."""

Server = Annotated[
    str,
    typer.Option(
        "--server",
        envvar="TIERLOG_SERVER",
        metavar="URL",
        show_default="the profile's, or 127.0.0.1:8080",
        help="HTTP address of a node, or of several, with commas.",
    ),
]
BucketUrl = Annotated[
    str | None,
    typer.Option("--bucket", metavar="URL", help="A bucket alone, no node: file:///path or s3://bucket/prefix."),
]
S3Endpoint = Annotated[
    str | None, typer.Option("--s3-endpoint", metavar="URL", help="An S3-compatible store's address, with --bucket.")
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON for programs to standard output.")]
Topics = Annotated[list[str] | None, typer.Argument(metavar="TOPIC", show_default=False, help="All if none is named.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="The topic's name.")]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", show_default=False, help="The consumer group's name.")]
Partitions = Annotated[
    list[int] | None, typer.Option(min=0, metavar="N", help="Only this partition; may be repeated. [default: all]")
]
