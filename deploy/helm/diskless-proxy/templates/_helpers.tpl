{{- define "diskless-proxy.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "diskless-proxy.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "diskless-proxy.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "diskless-proxy.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Fails if no rack is named; only warns in "helm lint", which renders the other templates all the same. */}}
{{- define "diskless-proxy.checkRacks" -}}
{{- if not .Values.racks }}
{{- fail "racks: name at least one, as broker.rack of the brokers there: --set 'racks[0].name=us-east-1a'; see values.yaml" }}
{{- end }}
{{- end }}

{{/* What belongs to one rack: (dict "root" $ "rack" .). Racks are named freely, objects are not. "-outside" fits behind it. */}}
{{- define "diskless-proxy.rackName" -}}
{{- printf "%s-%s" (include "diskless-proxy.fullname" .root) (regexReplaceAll "[^a-z0-9-]" (lower .rack.name) "-") | trunc 55 | trimSuffix "-" }}
{{- end }}

{{- define "diskless-proxy.selectorLabels" -}}
app.kubernetes.io/name: {{ include "diskless-proxy.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: proxy
{{- end }}

{{- define "diskless-proxy.labels" -}}
app.kubernetes.io/name: {{ include "diskless-proxy.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "diskless-proxy.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "diskless-proxy.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "diskless-proxy.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}

{{/* Node IDs such as 0-5,100-105, as a list in JSON. */}}
{{- define "diskless-proxy.nodeIds" -}}
{{- $ids := list }}
{{- range splitList "," (toString .) }}
{{- $bounds := splitList "-" (trim .) }}
{{- range untilStep (int (first $bounds)) (int (add1 (int (last $bounds)))) 1 }}
{{- $ids = append $ids . }}
{{- end }}
{{- end }}
{{- $ids | uniq | toJson }}
{{- end }}

{{/* Names of the ranges that the load balancer has, as a list in JSON: (dict "root" $ "config" the file as a dict). */}}
{{- define "diskless-proxy.outside" -}}
{{- $names := list }}
{{- $service := .root.Values.service }}
{{- if eq $service.type "LoadBalancer" }}
{{- range prepend (default list .config.additional_listeners) .config.listeners }}
{{- $names = append $names (default "default" .name) }}
{{- end }}
{{- if $service.listeners }}
{{- range $service.listeners }}
{{- if not (has . $names) }}
{{- fail (printf "service.listeners: %s is no range of config.listeners and config.additional_listeners, whose names are %s" . (join ", " $names)) }}
{{- end }}
{{- end }}
{{- $names = $service.listeners }}
{{- else if gt (len $names) 1 }}
{{- fail (printf "service.listeners: name those of the ranges %s that clients outside of the cluster come to; the load balancer has no others" (join ", " $names)) }}
{{- end }}
{{- else if $service.listeners }}
{{- fail "service.listeners: names ranges of a load balancer, and there is none; set service.type to LoadBalancer" }}
{{- end }}
{{- $names | toJson }}
{{- end }}

{{/*
Ports of a Service in front of proxies with that config, bootstrap and each broker's (not with sni_broker_host):
(dict "root" $ "config" the file as a dict "side" "outside", "inside" or "both"); "bootstrapOnly" true for those alone.
*/}}
{{- define "diskless-proxy.ports" -}}
{{- $outside := include "diskless-proxy.outside" . | fromJsonArray }}
{{- $in := . }}
{{- range $number, $one := prepend (default list .config.additional_listeners) .config.listeners -}}
{{- if or (eq $in.side "both") (eq $in.side (ternary "outside" "inside" (has (default "default" $one.name) $outside))) }}
{{- $name := ternary "" (printf "l%d-" $number) (eq $number 0) }}
{{- $start := int (default 19100 $one.broker_port_start) }}
- name: {{ $name }}bootstrap
  port: {{ int (default 19092 $one.bootstrap_port) }}
  targetPort: {{ int (default 19092 $one.bootstrap_port) }}
  protocol: TCP
{{- if not (or $in.bootstrapOnly $one.sni_broker_host) }}
{{- range include "diskless-proxy.nodeIds" (default "0-9" $one.broker_node_ids) | fromJsonArray }}
- name: {{ $name }}broker-{{ int . }}
  port: {{ add $start (int .) }}
  targetPort: {{ add $start (int .) }}
  protocol: TCP
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Ports by which clients in the cluster begin: those of ranges that no load balancer has, or of all where it has all. */}}
{{- define "diskless-proxy.bootstrapPorts" -}}
{{- $in := dict "root" .root "config" .config "side" "inside" "bootstrapOnly" true }}
{{- $inside := include "diskless-proxy.ports" $in | trim }}
{{- default (include "diskless-proxy.ports" (set $in "side" "both") | trim) $inside }}
{{- end }}

{{/* The file of one rack's proxies, in YAML: (dict "root" $ "rack" .). */}}
{{- define "diskless-proxy.config" -}}
{{- $root := .root }}
{{- $rack := .rack }}
{{- $secrets := $root.Values.secrets }}
{{- $config := mustMergeOverwrite (deepCopy $root.Values.config) (deepCopy (default dict $rack.config)) }}
{{- $_ := set $config "rack" $rack.name }}
{{- $_ := set $config "brokers" (default dict $config.brokers) }}
{{- if and $rack.sniBrokerHost (not $rack.advertisedHost) }}
{{- fail (printf "racks: %s has sniBrokerHost and no advertisedHost; set it to the name for bootstrap.servers, such as bootstrap.%s.kafka.example.com" $rack.name $rack.name) }}
{{- end }}
{{- $inside := printf "%s.%s.svc" (include "diskless-proxy.rackName" .) $root.Release.Namespace }}
{{- $outside := include "diskless-proxy.outside" (dict "root" $root "config" $config) | fromJsonArray }}
{{- range prepend (default list $config.additional_listeners) $config.listeners }}
{{- $host := default $inside $rack.advertisedHost }}
{{- if and $outside (not (has (default "default" .name) $outside)) }}{{ $host = $inside }}{{ end }}
{{- if and $rack.sniBrokerHost (eq $host (default "" $rack.advertisedHost)) (not .advertised_host) }}{{ $_ := set . "sni_broker_host" $rack.sniBrokerHost }}{{ end }}
{{- if not .advertised_host }}{{ $_ := set . "advertised_host" $host }}{{ end }}
{{- if not .host }}{{ $_ := set . "host" "0.0.0.0" }}{{ end }}
{{- end }}
{{- with $secrets.brokerSasl.existingSecret }}
{{- $sasl := default dict $config.brokers.sasl }}
{{- $_ := set $sasl "password_file" "/etc/diskless-proxy-secrets/broker-sasl/password" }}
{{- $_ := set $config.brokers "sasl" $sasl }}
{{- end }}
{{- with $secrets.brokerTls.existingSecret }}
{{- $tls := default dict $config.brokers.tls }}
{{- $_ := set $tls "ca_file" "/etc/diskless-proxy-secrets/broker-tls/ca.crt" }}
{{- $_ := set $config.brokers "tls" $tls }}
{{- end }}
{{- with $secrets.listenerTls }}{{ if .existingSecret }}
{{- $names := .listeners }}
{{- $known := list }}
{{- range prepend (default list $config.additional_listeners) $config.listeners }}
{{- $known = append $known (default "default" .name) }}
{{- end }}
{{- range $names }}
{{- if not (has . $known) }}
{{- fail (printf "secrets.listenerTls.listeners: %s is no range of config.listeners and config.additional_listeners, whose names are %s" . (join ", " $known)) }}
{{- end }}
{{- end }}
{{- range prepend (default list $config.additional_listeners) $config.listeners }}
{{- if has (default "default" .name) (default (list (default "default" $config.listeners.name)) $names) }}
{{- $tls := default dict .tls }}
{{- $_ := set $tls "certificate_file" "/etc/diskless-proxy-secrets/listener-tls/tls.crt" }}
{{- $_ := set $tls "key_file" "/etc/diskless-proxy-secrets/listener-tls/tls.key" }}
{{- $_ := set . "tls" $tls }}
{{- end }}
{{- end }}
{{- end }}{{ end }}
{{- with $secrets.adminToken.existingSecret }}
{{- $_ := set $config.admin "token_file" "/etc/diskless-proxy-secrets/admin-token/token" }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{/* Files of secrets: name, Secret, and each file's key in it. */}}
{{- define "diskless-proxy.secretFiles" -}}
{{- $secrets := .Values.secrets }}
{{- $files := list }}
{{- with $secrets.brokerSasl }}{{ if .existingSecret }}
{{- $files = append $files (dict "name" "broker-sasl" "secret" .existingSecret "items" (dict "password" .passwordKey)) }}
{{- end }}{{ end }}
{{- with $secrets.brokerTls }}{{ if .existingSecret }}
{{- $files = append $files (dict "name" "broker-tls" "secret" .existingSecret "items" (dict "ca.crt" .caKey)) }}
{{- end }}{{ end }}
{{- with $secrets.listenerTls }}{{ if .existingSecret }}
{{- $files = append $files (dict "name" "listener-tls" "secret" .existingSecret "items" (dict "tls.crt" .certificateKey "tls.key" .keyKey)) }}
{{- end }}{{ end }}
{{- with $secrets.adminToken }}{{ if .existingSecret }}
{{- $files = append $files (dict "name" "admin-token" "secret" .existingSecret "items" (dict "token" .tokenKey)) }}
{{- end }}{{ end }}
{{- $files | toJson }}
{{- end }}
