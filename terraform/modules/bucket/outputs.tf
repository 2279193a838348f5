output "name" {
  description = "Name of the bucket."
  value       = var.create ? aws_s3_bucket.this[0].id : var.name
}

output "arn" {
  description = "ARN of the bucket."
  value       = local.arn
}

output "url" {
  description = "What --bucket takes."
  value       = trimsuffix("s3://${var.name}/${local.folder}", "/")
}

output "policy_arns" {
  description = "ARNs of the IAM policies, by writer, collector and reader."
  value       = { for name, policy in aws_iam_policy.this : name => policy.arn }
}

output "policy_documents" {
  description = "The same policies as JSON, by writer, collector and reader."
  value       = local.documents
}

output "backups" {
  description = "Where backups of etcd go: bucket, prefix and KMS key; an input of the etcd module."
  value = {
    bucket      = var.create ? aws_s3_bucket.this[0].id : var.name
    prefix      = local.backup_prefix
    kms_key_arn = var.kms_key_arn
  }
}

output "commands" {
  description = "Ready command lines: check the archive, see what it holds, see what garbage collection would delete."
  value = {
    status = "tierlog archive status --bucket ${trimsuffix("s3://${var.name}/${local.folder}", "/")}"
    verify = "tierlog archive verify --bucket ${trimsuffix("s3://${var.name}/${local.folder}", "/")}"
    gc     = "tierlog archive gc --bucket ${trimsuffix("s3://${var.name}/${local.folder}", "/")}"
  }
}
