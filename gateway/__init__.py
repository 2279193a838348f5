"""How clients and other brokers reach us. Each line imports only from lines below it; import-linter checks that.

`http`              the HTTP API, metrics, health
`kafka`             the Kafka wire protocol
`delivery`          deliveries that fail, and dead letters
`record_stream`     the records of a partition as Python values
`node`              one broker's parts as the handlers see them; it still holds sessions of `kafka`, the one exception
`coordinators`      consumer groups
`fetch`             one read over all tiers
`quotas`            which clients are slowed down, and by how much
`archive_control`   what the gateway asks of the archive
`budget`, `lane`, `loop_delay`, `off_loop`   how memory and the event loop are shared
"""
