output "topic_arn" {
  description = "SNS topic of all alarms; alarm_topic_arns of the other modules take it."
  value       = aws_sns_topic.alarms.arn
}

output "metrics" {
  description = "Names of the metrics that alarms and dashboard use."
  value       = sort(distinct([for alarm in local.alarms : alarm.metric]))
}

output "commands" {
  description = "Ready command lines: which alarms ring, and get them by SMS or another way."
  value = {
    ringing   = "aws cloudwatch describe-alarms --region ${data.aws_region.current.id} --state-value ALARM --alarm-name-prefix ${var.name}-"
    subscribe = "aws sns subscribe --region ${data.aws_region.current.id} --topic-arn ${aws_sns_topic.alarms.arn} --protocol sms --notification-endpoint +15550100"
  }
}
