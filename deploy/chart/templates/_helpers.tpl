{{/* Fills in the defaults of values that are left out or null. Each template begins with it. */}}
{{- define "podium.defaults" -}}
{{- include "podium.fill" (dict "values" .Values "defaults" (.Files.Get "defaults.json" | fromJson)) }}
{{- end }}

{{- define "podium.fill" -}}
{{- $values := .values }}
{{- $whole := list "policy" "resources" "podSecurityContext" "securityContext" }}
{{- range $key, $default := .defaults }}
{{- $value := index $values $key }}
{{- if kindIs "invalid" $value }}
{{- $_ := set $values $key $default }}
{{- else if and (kindIs "map" $default) (not (has $key $whole)) }}
{{- include "podium.fill" (dict "values" $value "defaults" $default) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Name of all objects of the host. */}}
{{- define "podium.host" -}}
{{ .Release.Name }}-host
{{- end }}

{{/* The rights to the Leases. A new object has no name yet when RBAC is asked. Those to the Leases of shards do not
depend on activeReplicas: a rollout from "all" to 1 changes the rights before it ends replicas that share. */}}
{{- define "podium.lease" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames:
    - podium-host
    {{- range until 16 }}
    - podium-host-shard-{{ . }}
    {{- end }}
  verbs: [get, update]
# One list instead of a read of each.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [list]
{{- end }}

{{/* A claim belongs to one Pod. */}}
{{- define "podium.replicas" -}}
{{ ternary 1 (int .Values.replicas) .Values.persistence.enabled }}
{{- end }}

{{/* Not empty if there are several Pods, which need a Lease. */}}
{{- define "podium.leased" -}}
{{ if gt (int (include "podium.replicas" .)) 1 }}true{{ end }}
{{- end }}

{{/* Not empty if each of several Pods runs plugins. */}}
{{- define "podium.shared" -}}
{{ if and (include "podium.leased" .) (eq (toString .Values.activeReplicas) "all") }}true{{ end }}
{{- end }}

{{/* Name of the account that removes finalizers of deleted plugins. */}}
{{- define "podium.cleanup" -}}
{{ .Release.Name }}-cleanup
{{- end }}

{{/* The namespaces that accounts of ClusterReconcilePlugins may be in, as a list in CEL. */}}
{{- define "podium.accountNamespaces" -}}
['{{ prepend .Values.admission.clusterAccountNamespaces .Release.Namespace | join "', '" }}']
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

{{/* The files of /etc/podium: the policy, and those beside it. */}}
{{- define "podium.files" -}}
{{- range .Values.policy.registries }}
{{- if and .caFile (not (hasPrefix "/" .caFile)) (not (hasKey $.Values.policyFiles .caFile)) }}
{{- $next := "add this file to policyFiles, or mount it (extraVolumes, extraVolumeMounts) and set its absolute path" }}
{{- fail (printf "policy.registries: %s has the caFile %s; %s" .host .caFile $next) }}
{{- end }}
{{- end }}
policy.yaml: |
  {{- include "podium.policy" . | trim | nindent 2 }}
{{- range $name, $text := .Values.policyFiles }}
{{ $name }}: {{ $text | quote }}
{{- end }}
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
