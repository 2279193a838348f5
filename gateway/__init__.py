"""How clients and other brokers reach us. Each line imports only from lines below it; import-linter checks that.

`http`              the HTTP API, metrics, health, the console
`kafka`             the Kafka wire protocol
`delivery`          deliveries that fail, and dead letters
`sql`               queries over topics, and the search for a record by its key
`record_stream`     the records of a partition as Python values
`node`              one broker's parts as the handlers see them
`audit`             who did what, as records of a topic
`coordinators`      consumer groups and transactions
`fetch`             one read over all tiers
`quotas`            which clients are slowed down, and by how much
`handshakes`        connections whose TLS handshake is not done
`archive_control`   what the gateway asks of the archive
`authorizer`        who may do what
`listener`          sockets, and who may connect to them
`kafka_settings`    settings of the Kafka listener
`budget`, `lane`, `loop_delay`, `off_loop`, `timeouts`   how memory, the event loop and its timers are shared
`certificate_names`, `logins`, `principal`, `sasl`, `tls`, `tokens`   how a sender proves who it is
"""
