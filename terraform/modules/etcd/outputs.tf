output "metadata" {
  description = "What --metadata and the brokers module's metadata take."
  value       = "etcd://${join(",", [for name in local.names : "${name}:2379"])}/${var.name}"
}

output "client" {
  description = "How clients reach etcd: security group and certificates; an input of the brokers module."
  value = {
    security_group_id = aws_security_group.client.id
    kms_key_arn       = var.certificate_kms_key_arn
    parameters = {
      ca   = "${var.certificate_path}/ca"
      cert = "${var.certificate_path}/client-cert"
      key  = "${var.certificate_path}/client-key"
    }
  }
}

output "member_names" {
  description = "DNS names of the members."
  value       = values(local.names)
}

output "machine_policy" {
  description = "What the members may do, as JSON."
  value       = local.document
}

output "certificate_command" {
  description = "Makes the certificates and puts them into SSM; run it once before the members start, and again before they expire."
  value       = "${abspath(path.module)}/certificates.sh ${var.certificate_kms_key_arn == null ? "" : "--key-id ${var.certificate_kms_key_arn} "}./etcd-certificates ${var.certificate_path} ${join(" ", values(local.names))}"
}

output "commands" {
  description = "Ready command lines: replace a member, one at a time, and list the backups."
  value = merge(
    { for member in keys(local.members) : "replace_${member}" => "terraform apply -replace='module.etcd.aws_instance.member[\"${member}\"]'" },
    { backups = "aws s3 ls s3://${var.backups.bucket}/${var.backups.prefix}" },
  )
}
