{{/*
A proxy as a native sidecar, for charts that depend on this one (with mode: none): an entry of initContainers.

    initContainers:
      - {{- include "diskless-proxy.sidecar" (dict "root" $) | nindent 8 }}

root: the context. image: where it is not diskless-proxy:<version of this chart>. rackField: of the pod,
topology.kubernetes.io/zone of its labels where missing. secret: taken as environment, where given. resources: as
anywhere. The pod needs a volume `diskless-proxy` of a ConfigMap with proxy.yaml in it, as in
deploy/kubernetes/sidecar.yaml, and securityContext of its own.
*/}}
{{- define "diskless-proxy.sidecar" -}}
name: diskless-proxy
image: {{ default "diskless-proxy:0.1.0" .image }}
restartPolicy: Always
args: [run, --config, /etc/diskless-proxy/proxy.yaml]
env:
  - name: DISKLESS_PROXY_RACK
    valueFrom:
      fieldRef:
        fieldPath: {{ default "metadata.labels['topology.kubernetes.io/zone']" .rackField }}
  - name: DISKLESS_PROXY_PROXY_ID
    valueFrom:
      fieldRef: {fieldPath: metadata.name}
  - name: DISKLESS_PROXY_ADMIN__ADVERTISED_HOST
    valueFrom:
      fieldRef: {fieldPath: status.podIP}
{{- with .secret }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
ports:
  - {name: diskless-admin, containerPort: 19080}
startupProbe: # the application starts when this one has succeeded
  httpGet: {path: /servez, port: diskless-admin}
  periodSeconds: 1
  failureThreshold: 300
livenessProbe:
  httpGet: {path: /healthz, port: diskless-admin}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
resources:
  {{- toYaml (default (dict "requests" (dict "cpu" "250m" "memory" "512Mi") "limits" (dict "memory" "512Mi")) .resources) | nindent 2 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
volumeMounts:
  - {name: diskless-proxy, mountPath: /etc/diskless-proxy, readOnly: true}
{{- end }}
