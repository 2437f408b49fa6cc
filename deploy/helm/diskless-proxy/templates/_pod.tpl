{{/* Environment of whatever reads the proxies' file. */}}
{{- define "diskless-proxy.env" -}}
{{- with .Values.secrets.redis }}
{{- if .existingSecret }}
- name: DISKLESS_PROXY_REDIS__URL
  valueFrom:
    secretKeyRef: {name: {{ .existingSecret }}, key: {{ .urlKey }}}
{{- end }}
{{- end }}
{{- with .Values.secrets.storage }}
{{- if .existingSecret }}
- name: DISKLESS_PROXY_STORAGE__ACCESS_KEY_ID
  valueFrom:
    secretKeyRef: {name: {{ .existingSecret }}, key: {{ .accessKeyIdKey }}}
- name: DISKLESS_PROXY_STORAGE__SECRET_ACCESS_KEY
  valueFrom:
    secretKeyRef: {name: {{ .existingSecret }}, key: {{ .secretAccessKeyKey }}}
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "diskless-proxy.volumeMounts" -}}
- {name: config, mountPath: /etc/diskless-proxy, readOnly: true}
- {name: scratch, mountPath: /tmp}
{{- range include "diskless-proxy.secretFiles" . | fromJsonArray }}
- {name: {{ .name }}, mountPath: /etc/diskless-proxy-secrets/{{ .name }}, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* (dict "root" $ "rack" .). Secrets are mounted as directories: what is renewed in them is seen. */}}
{{- define "diskless-proxy.volumes" -}}
- name: config
  configMap: {name: {{ include "diskless-proxy.rackName" . }}}
- name: scratch
  emptyDir: {}
{{- range include "diskless-proxy.secretFiles" .root | fromJsonArray }}
- name: {{ .name }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items:
    {{- range $path, $key := .items }}
      - {key: {{ $key }}, path: {{ $path }}}
    {{- end }}
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Where pods that run the image may be scheduled; of those of a rack the zone comes to it. */}}
{{- define "diskless-proxy.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Affinity to the zone of a rack: (dict "root" $ "rack" .). */}}
{{- define "diskless-proxy.zone" -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions:
          - {key: topology.kubernetes.io/zone, operator: In, values: [{{ default .rack.name .rack.zone | quote }}]}
{{- end }}

{{/* preStop: the pod goes on while Services hear that it ends. */}}
{{- define "diskless-proxy.preStop" -}}
{{- if semverCompare ">=1.30-0" .root.Capabilities.KubeVersion.Version -}}
sleep: {seconds: {{ .seconds }}}
{{- else -}}
exec: {command: [sleep, {{ .seconds | quote }}]}
{{- end }}
{{- end }}

{{/* The pod of one rack's workload: (dict "root" $ "rack" . "config" its file as a dict). */}}
{{- define "diskless-proxy.pod" -}}
{{- $root := .root }}
{{- $values := .root.Values }}
{{- $drainSeconds := divf (default 25000 (dig "limits" "drain_timeout_ms" 25000 .config)) 1000 | ceil | int }}
metadata:
  labels:
    {{- include "diskless-proxy.selectorLabels" $root | nindent 4 }}
    diskless-proxy/rack: {{ include "diskless-proxy.rackName" . }}
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    {{- if $values.rollOnConfigChange }}
    checksum/config: {{ toJson .config | sha256sum }}
    {{- end }}
    kubectl.kubernetes.io/default-container: proxy
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "diskless-proxy.serviceAccountName" $root }}
  automountServiceAccountToken: {{ $values.serviceAccount.automountToken }}
  enableServiceLinks: false # Services named diskless-proxy would become settings of the environment
  {{- with $values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with include "diskless-proxy.placement" $root | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ add $values.preStopSeconds $drainSeconds $values.graceSeconds }}
  securityContext:
    {{- toYaml $values.podSecurityContext | nindent 4 }}
  affinity:
    {{- include "diskless-proxy.zone" . | nindent 4 }}
    {{- with $values.affinity }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if eq $values.mode "Deployment" }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "diskless-proxy.selectorLabels" $root | nindent 10 }}
          diskless-proxy/rack: {{ include "diskless-proxy.rackName" . }}
  {{- end }}
  containers:
    - name: proxy
      image: {{ include "diskless-proxy.image" $root }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args: [run, --config, /etc/diskless-proxy/proxy.yaml]
      env:
        - name: DISKLESS_PROXY_PROXY_ID
          valueFrom:
            fieldRef: {fieldPath: metadata.name}
        {{- if not .config.admin.advertised_host }}
        - name: DISKLESS_PROXY_ADMIN__ADVERTISED_HOST
          valueFrom:
            fieldRef: {fieldPath: status.podIP}
        {{- end }}
        {{- with include "diskless-proxy.env" $root }}
        {{- . | trim | nindent 8 }}
        {{- end }}
      {{- with $values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - {name: bootstrap, containerPort: {{ int .config.listeners.bootstrap_port }}}
        - {name: admin, containerPort: {{ int .config.admin.port }}}
      startupProbe:
        httpGet: {path: /healthz, port: admin}
        {{- toYaml $values.probes.startup | nindent 8 }}
      livenessProbe:
        httpGet: {path: /healthz, port: admin}
        {{- toYaml $values.probes.liveness | nindent 8 }}
      readinessProbe:
        httpGet: {path: /servez, port: admin} # not /readyz: clients of classic topics need no Redis
        {{- toYaml $values.probes.readiness | nindent 8 }}
      lifecycle:
        preStop:
          {{- include "diskless-proxy.preStop" (dict "root" $root "seconds" $values.preStopSeconds) | nindent 10 }}
      resources:
        {{- toYaml $values.resources | nindent 8 }}
      securityContext:
        {{- toYaml $values.securityContext | nindent 8 }}
      volumeMounts:
        {{- include "diskless-proxy.volumeMounts" $root | nindent 8 }}
  volumes:
    {{- include "diskless-proxy.volumes" . | nindent 4 }}
{{- end }}
