# Alarms on machines and readiness; those on what brokers say of themselves are in the monitoring module.

resource "aws_cloudwatch_metric_alarm" "machine" {
  for_each = local.slots

  alarm_name          = "${var.name}-${each.key}-machine"
  alarm_description   = "The machine of broker ${each.key} fails its status checks. Its group replaces it; look at tierlog cluster status until all replicas are in sync."
  namespace           = "AWS/EC2"
  metric_name         = "StatusCheckFailed"
  dimensions          = { AutoScalingGroupName = aws_autoscaling_group.broker[each.key].name }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  period              = 60
  evaluation_periods  = 3
  treat_missing_data  = "breaching"
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
  tags                = local.tags
}

resource "aws_cloudwatch_metric_alarm" "ready" {
  for_each = aws_lb_target_group.this

  alarm_name          = "${var.name}-${each.key}-not-ready"
  alarm_description   = "A broker does not answer /readyz with 200. See journalctl -u tierlog on its machine."
  namespace           = "AWS/NetworkELB"
  metric_name         = "UnHealthyHostCount"
  dimensions          = { LoadBalancer = aws_lb.this[0].arn_suffix, TargetGroup = each.value.arn_suffix }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  period              = 60
  evaluation_periods  = 5
  treat_missing_data  = "breaching"
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
  tags                = local.tags
}
