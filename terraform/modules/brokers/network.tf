# Who may talk to whom, and the load balancer. Kafka clients are told the brokers' own addresses, so they reach those too.

locals {
  ports        = { kafka = var.kafka_port, http = var.http_port }
  inside_ports = { inside = 9093, inside_http = 8083 }
  # Where brokers call each other.
  peer_ports = var.insecure ? local.ports : local.inside_ports

  client_rules = merge([
    for listener, port in local.ports : merge(
      { for cidr in distinct(var.client_cidrs) : "${listener} from ${cidr}" => { port = port, cidr = cidr, group = null } },
      { for name, group in var.client_security_group_ids : "${listener} from ${name}" => { port = port, cidr = null, group = group } },
    )
  ]...)
}

resource "aws_security_group" "broker" {
  name_prefix = "${var.name}-broker-"
  description = "tierlog brokers of ${var.name}"
  vpc_id      = var.vpc_id
  tags        = merge(local.tags, { Name = "${var.name}-broker" })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  for_each = local.client_rules

  security_group_id            = aws_security_group.broker.id
  description                  = each.key
  ip_protocol                  = "tcp"
  from_port                    = each.value.port
  to_port                      = each.value.port
  cidr_ipv4                    = each.value.cidr
  referenced_security_group_id = each.value.group
}

resource "aws_vpc_security_group_ingress_rule" "brokers" {
  for_each = local.peer_ports

  security_group_id            = aws_security_group.broker.id
  description                  = "${each.key} from other brokers"
  ip_protocol                  = "tcp"
  from_port                    = each.value
  to_port                      = each.value
  referenced_security_group_id = aws_security_group.broker.id
}

resource "aws_vpc_security_group_egress_rule" "brokers" {
  for_each = local.peer_ports

  security_group_id            = aws_security_group.broker.id
  description                  = "${each.key} to other brokers"
  ip_protocol                  = "tcp"
  from_port                    = each.value
  to_port                      = each.value
  referenced_security_group_id = aws_security_group.broker.id
}

resource "aws_vpc_security_group_egress_rule" "endpoints" {
  count = length(var.endpoint_cidrs)

  security_group_id = aws_security_group.broker.id
  description       = "endpoints of AWS's services"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  cidr_ipv4         = var.endpoint_cidrs[count.index]
}

resource "aws_vpc_security_group_egress_rule" "gateways" {
  count = length(var.endpoint_prefix_list_ids)

  security_group_id = aws_security_group.broker.id
  description       = "S3 by its gateway endpoint"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  prefix_list_id    = var.endpoint_prefix_list_ids[count.index]
}

resource "aws_vpc_security_group_egress_rule" "internet" {
  for_each = var.internet_egress ? toset(["80", "443"]) : []

  security_group_id = aws_security_group.broker.id
  description       = "packages and AWS's services"
  ip_protocol       = "tcp"
  from_port         = tonumber(each.key)
  to_port           = tonumber(each.key)
  cidr_ipv4         = "0.0.0.0/0"
}

resource "aws_security_group" "balancer" {
  count = var.load_balancer ? 1 : 0

  name_prefix = "${var.name}-balancer-"
  description = "Load balancer of the tierlog cluster ${var.name}"
  vpc_id      = var.vpc_id
  tags        = merge(local.tags, { Name = "${var.name}-balancer" })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_ingress_rule" "balancer" {
  for_each = var.load_balancer ? local.client_rules : {}

  security_group_id            = aws_security_group.balancer[0].id
  description                  = each.key
  ip_protocol                  = "tcp"
  from_port                    = each.value.port
  to_port                      = each.value.port
  cidr_ipv4                    = each.value.cidr
  referenced_security_group_id = each.value.group
}

resource "aws_vpc_security_group_egress_rule" "balancer" {
  for_each = var.load_balancer ? local.ports : {}

  security_group_id            = aws_security_group.balancer[0].id
  description                  = "${each.key} to brokers"
  ip_protocol                  = "tcp"
  from_port                    = each.value
  to_port                      = each.value
  referenced_security_group_id = aws_security_group.broker.id
}

resource "aws_vpc_security_group_ingress_rule" "from_balancer" {
  for_each = var.load_balancer ? local.ports : {}

  security_group_id            = aws_security_group.broker.id
  description                  = "${each.key} from the load balancer"
  ip_protocol                  = "tcp"
  from_port                    = each.value
  to_port                      = each.value
  referenced_security_group_id = aws_security_group.balancer[0].id
}

resource "aws_lb" "this" {
  count = var.load_balancer ? 1 : 0

  name                             = "${var.name}-brokers"
  load_balancer_type               = "network"
  internal                         = true
  subnets                          = var.subnet_ids
  security_groups                  = [aws_security_group.balancer[0].id]
  enable_cross_zone_load_balancing = true
  tags                             = local.tags
}

resource "aws_lb_target_group" "this" {
  for_each = var.load_balancer ? local.ports : {}

  name                   = "${var.name}-${each.key}"
  vpc_id                 = var.vpc_id
  port                   = each.value
  protocol               = "TCP"
  target_type            = "instance"
  preserve_client_ip     = "true" # limits per address count clients, not the balancer
  connection_termination = true
  deregistration_delay   = "60"
  tags                   = local.tags

  health_check {
    protocol            = var.insecure ? "HTTP" : "HTTPS"
    port                = tostring(var.http_port)
    path                = "/readyz"
    matcher             = "200"
    interval            = 10
    timeout             = 5
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }
}

resource "aws_lb_listener" "this" {
  for_each = aws_lb_target_group.this

  load_balancer_arn = aws_lb.this[0].arn
  port              = each.value.port
  protocol          = "TCP"
  tags              = local.tags

  default_action {
    type             = "forward"
    target_group_arn = each.value.arn
  }
}
