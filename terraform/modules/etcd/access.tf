# Security groups, and what the members may do: read their certificates, put backups. Nobody but brokers and members reaches etcd.

locals {
  document = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [
        {
          Sid      = "ReadCertificates"
          Effect   = "Allow"
          Action   = ["ssm:GetParameter"]
          Resource = [for name in keys(local.tls) : "${local.arn}:ssm:${local.region}:${data.aws_caller_identity.current.account_id}:parameter${var.certificate_path}/${name}"]
        },
        {
          Sid      = "PutBackups"
          Effect   = "Allow"
          Action   = ["s3:PutObject"]
          Resource = ["${local.arn}:s3:::${var.backups.bucket}/${var.backups.prefix}*"]
        },
      ],
      var.certificate_kms_key_arn == null ? [] : [{
        Sid      = "DecryptCertificates"
        Effect   = "Allow"
        Action   = ["kms:Decrypt"]
        Resource = [var.certificate_kms_key_arn]
      }],
      var.backups.kms_key_arn == null ? [] : [{
        Sid      = "EncryptBackups"
        Effect   = "Allow"
        Action   = ["kms:GenerateDataKey"]
        Resource = [var.backups.kms_key_arn]
      }],
    )
  })
}

resource "aws_iam_role" "member" {
  name_prefix = "${var.name}-etcd-"
  tags        = local.tags
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.${data.aws_partition.current.dns_suffix}" }
    }]
  })
}

resource "aws_iam_role_policy" "member" {
  name   = "machine"
  role   = aws_iam_role.member.id
  policy = local.document
}

resource "aws_iam_instance_profile" "member" {
  name_prefix = "${var.name}-etcd-"
  role        = aws_iam_role.member.name
  tags        = local.tags
}

resource "aws_security_group" "member" {
  name_prefix = "${var.name}-etcd-"
  description = "Members of etcd of ${var.name}"
  vpc_id      = var.vpc_id
  tags        = merge(local.tags, { Name = "${var.name}-etcd" })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_security_group" "client" {
  name_prefix = "${var.name}-etcd-client-"
  description = "Clients of etcd of ${var.name}"
  vpc_id      = var.vpc_id
  tags        = merge(local.tags, { Name = "${var.name}-etcd-client" })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  security_group_id            = aws_security_group.member.id
  description                  = "clients"
  ip_protocol                  = "tcp"
  from_port                    = 2379
  to_port                      = 2379
  referenced_security_group_id = aws_security_group.client.id
}

resource "aws_vpc_security_group_egress_rule" "clients" {
  security_group_id            = aws_security_group.client.id
  description                  = "etcd"
  ip_protocol                  = "tcp"
  from_port                    = 2379
  to_port                      = 2379
  referenced_security_group_id = aws_security_group.member.id
}

resource "aws_vpc_security_group_ingress_rule" "members" {
  security_group_id            = aws_security_group.member.id
  description                  = "other members, and backups of a member by itself"
  ip_protocol                  = "tcp"
  from_port                    = 2379
  to_port                      = 2380
  referenced_security_group_id = aws_security_group.member.id
}

resource "aws_vpc_security_group_egress_rule" "members" {
  security_group_id            = aws_security_group.member.id
  description                  = "other members, and backups of a member by itself"
  ip_protocol                  = "tcp"
  from_port                    = 2379
  to_port                      = 2380
  referenced_security_group_id = aws_security_group.member.id
}

resource "aws_vpc_security_group_egress_rule" "endpoints" {
  count = length(var.endpoint_cidrs)

  security_group_id = aws_security_group.member.id
  description       = "endpoints of AWS's services"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  cidr_ipv4         = var.endpoint_cidrs[count.index]
}

resource "aws_vpc_security_group_egress_rule" "gateways" {
  count = length(var.endpoint_prefix_list_ids)

  security_group_id = aws_security_group.member.id
  description       = "S3 by its gateway endpoint"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  prefix_list_id    = var.endpoint_prefix_list_ids[count.index]
}

resource "aws_vpc_security_group_egress_rule" "internet" {
  for_each = var.internet_egress ? toset(["80", "443"]) : []

  security_group_id = aws_security_group.member.id
  description       = "packages and AWS's services"
  ip_protocol       = "tcp"
  from_port         = tonumber(each.key)
  to_port           = tonumber(each.key)
  cidr_ipv4         = "0.0.0.0/0"
}
