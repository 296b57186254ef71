{{/* Name of all objects of the host. */}}
{{- define "podium.host" -}}
{{ .Release.Name }}-host
{{- end }}

{{/* Name of the account that removes finalizers of deleted plugins. */}}
{{- define "podium.cleanup" -}}
{{ .Release.Name }}-cleanup
{{- end }}

{{- define "podium.selector" -}}
app.kubernetes.io/name: podium
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: host
{{- end }}

{{- define "podium.labels" -}}
app.kubernetes.io/name: podium
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: podium
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "podium.image" -}}
{{ .Values.image.repository }}
{{- with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* The text of policy.yaml. */}}
{{- define "podium.policy" -}}
{{- $spec := deepCopy .Values.policy }}
{{- $namespaces := $spec.namespaces | default dict }}
{{- $excluded := .Values.excludedNamespaces }}
{{- if ne .Values.watchNamespace .Release.Namespace }}
{{- $excluded = append $excluded .Release.Namespace }}
{{- end }}
{{- range $excluded }}
{{- if not (hasKey $namespaces .) }}
{{- $_ := set $namespaces . (dict "excluded" true) }}
{{- end }}
{{- end }}
{{- $_ := set $spec "namespaces" $namespaces }}
apiVersion: podium.dev/v1alpha1
kind: Policy
spec:
  {{- toYaml $spec | nindent 2 }}
{{- end }}
