output "vpc_id" {
  description = "The VPC."
  value       = aws_vpc.this.id
}

output "cidr" {
  description = "Addresses of the VPC."
  value       = aws_vpc.this.cidr_block
}

output "subnet_ids" {
  description = "Private subnets, one per zone, in the order of zones."
  value       = [for zone in var.zones : aws_subnet.private[zone].id]
}

output "s3_prefix_list_id" {
  description = "Prefix list of S3's gateway endpoint; endpoint_prefix_list_ids of the other modules take it."
  value       = aws_vpc_endpoint.s3.prefix_list_id
}
