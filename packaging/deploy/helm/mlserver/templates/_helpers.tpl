{{- define "mlserver.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* 53 characters leave room for the suffixes. */}}
{{- define "mlserver.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" }}
{{- else if contains (include "mlserver.name" .) .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "mlserver.name" .) | trunc 53 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "mlserver.selector" -}}
app.kubernetes.io/name: {{ include "mlserver.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mlserver.labels" -}}
{{ include "mlserver.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "mlserver.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "mlserver.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* The secret of TLS, empty without TLS. */}}
{{- define "mlserver.tlsSecret" -}}
{{- if .Values.tls.secret -}}
{{- .Values.tls.secret }}
{{- else if .Values.tls.issuer.name -}}
{{- include "mlserver.fullname" . }}-tls
{{- end }}
{{- end }}

{{- /* The server serves the requests that arrive until all proxies know that the pod is going away. */}}
{{- define "mlserver.shutdownDelay" -}}
{{- if hasKey .Values.settings "shutdown_delay" }}{{ .Values.settings.shutdown_delay }}{{ else }}5{{ end }}
{{- end }}

{{- define "mlserver.settings" -}}
{{- $own := dict "http_port" 8080 "grpc_port" 8081 "metrics_port" 8082 "environments_dir" "/tmp/environments" }}
{{- if .Values.models.uri }}
{{- $own = set $own "storage_cache" "/tmp/models" }}
{{- end }}
{{- $own = set $own "shutdown_delay" (include "mlserver.shutdownDelay" . | float64) }}
{{- if include "mlserver.tlsSecret" . }}
{{- $own = set $own "tls_certificate" "/etc/mlserver/tls/tls.crt" }}
{{- $own = set $own "tls_key" "/etc/mlserver/tls/tls.key" }}
{{- end }}
{{- if .Values.keys.secret }}
{{- $own = set $own "api_keys_file" "/etc/mlserver/keys/keys.json" }}
{{- end }}
{{- merge $own .Values.settings | toPrettyJson }}
{{- end }}
