# A VPC with a private subnet per zone, S3 by a gateway endpoint, and one way to AWS's other services: their interface
# endpoints or, if asked for, the internet. For those
# who have no network yet; examples/existing-network does without.

data "aws_region" "current" {}

locals {
  zones = { for index, zone in var.zones : zone => index }
}

resource "aws_vpc" "this" {
  cidr_block           = var.cidr
  enable_dns_support   = true
  enable_dns_hostnames = true
  tags                 = merge(var.tags, { Name = var.name })
}

# The group that every VPC has by itself, emptied: nothing is to use it.
resource "aws_default_security_group" "unused" {
  vpc_id = aws_vpc.this.id
  tags   = var.tags
}

resource "aws_subnet" "private" {
  for_each = local.zones

  vpc_id                  = aws_vpc.this.id
  availability_zone       = each.key
  cidr_block              = cidrsubnet(var.cidr, 4, each.value)
  map_public_ip_on_launch = false
  tags                    = merge(var.tags, { Name = "${var.name}-${each.key}" })
}

resource "aws_route_table" "private" {
  vpc_id = aws_vpc.this.id
  tags   = merge(var.tags, { Name = "${var.name}-private" })
}

resource "aws_route_table_association" "private" {
  for_each = local.zones

  subnet_id      = aws_subnet.private[each.key].id
  route_table_id = aws_route_table.private.id
}

resource "aws_vpc_endpoint" "s3" {
  vpc_id            = aws_vpc.this.id
  service_name      = "com.amazonaws.${data.aws_region.current.id}.s3"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = [aws_route_table.private.id]
  tags              = merge(var.tags, { Name = "${var.name}-s3" })
}

resource "aws_security_group" "endpoints" {
  count = var.internet_egress ? 0 : 1

  name_prefix = "${var.name}-endpoints-"
  description = "Endpoints of AWS's services in ${var.name}"
  vpc_id      = aws_vpc.this.id
  tags        = merge(var.tags, { Name = "${var.name}-endpoints" })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_ingress_rule" "endpoints" {
  count = var.internet_egress ? 0 : 1

  security_group_id = aws_security_group.endpoints[0].id
  description       = "machines of this network"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  cidr_ipv4         = var.cidr
}

# What terraform/node/node.py asks beside S3.
resource "aws_vpc_endpoint" "services" {
  for_each = var.internet_egress ? [] : toset(["autoscaling", "ec2", "monitoring", "secretsmanager", "ssm"])

  vpc_id              = aws_vpc.this.id
  service_name        = "com.amazonaws.${data.aws_region.current.id}.${each.key}"
  vpc_endpoint_type   = "Interface"
  subnet_ids          = [for subnet in aws_subnet.private : subnet.id]
  security_group_ids  = [aws_security_group.endpoints[0].id]
  private_dns_enabled = true
  tags                = merge(var.tags, { Name = "${var.name}-${each.key}" })
}

resource "aws_internet_gateway" "this" {
  count = var.internet_egress ? 1 : 0

  vpc_id = aws_vpc.this.id
  tags   = merge(var.tags, { Name = var.name })
}

resource "aws_subnet" "nat" {
  count = var.internet_egress ? 1 : 0

  vpc_id                  = aws_vpc.this.id
  availability_zone       = var.zones[0]
  cidr_block              = cidrsubnet(var.cidr, 4, 15)
  map_public_ip_on_launch = false
  tags                    = merge(var.tags, { Name = "${var.name}-nat" })
}

resource "aws_route_table" "nat" {
  count = var.internet_egress ? 1 : 0

  vpc_id = aws_vpc.this.id
  tags   = merge(var.tags, { Name = "${var.name}-nat" })
}

resource "aws_route" "nat" {
  count = var.internet_egress ? 1 : 0

  route_table_id         = aws_route_table.nat[0].id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.this[0].id
}

resource "aws_route_table_association" "nat" {
  count = var.internet_egress ? 1 : 0

  subnet_id      = aws_subnet.nat[0].id
  route_table_id = aws_route_table.nat[0].id
}

resource "aws_eip" "nat" {
  count = var.internet_egress ? 1 : 0

  domain = "vpc"
  tags   = merge(var.tags, { Name = "${var.name}-nat" })
}

# One for all zones: it is used while machines install packages, not by records.
resource "aws_nat_gateway" "this" {
  count = var.internet_egress ? 1 : 0

  allocation_id = aws_eip.nat[0].id
  subnet_id     = aws_subnet.nat[0].id
  tags          = merge(var.tags, { Name = var.name })

  depends_on = [aws_route.nat]
}

resource "aws_route" "private" {
  count = var.internet_egress ? 1 : 0

  route_table_id         = aws_route_table.private.id
  destination_cidr_block = "0.0.0.0/0"
  nat_gateway_id         = aws_nat_gateway.this[0].id
}
