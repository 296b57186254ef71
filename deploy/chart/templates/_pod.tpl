{{/* The spec of the host's Pod, or with `check` of one that only checks the policy. `policy` is its ConfigMap. */}}
{{- define "podium.pod" -}}
{{- $check := .check }}
{{- $policy := .policy }}
{{- with .chart }}
{{- if $check }}
restartPolicy: Never
automountServiceAccountToken: false
{{- else }}
serviceAccountName: {{ include "podium.host" . }}
{{- end }}
enableServiceLinks: false
terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
containers:
  - name: host
    image: {{ include "podium.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args:
      {{- if $check }}
      - --check
      {{- end }}
      - --watch-plugins
      {{- if and (not $check) (include "podium.leased" .) }}
      - --lease=on
      {{- if include "podium.shared" . }}
      - --active-replicas=all
      {{- end }}
      {{- end }}
      - --require-service-account
      {{- if .Values.cleanup.enabled }}
      - --cleanup-service-account={{ .Release.Namespace }}/{{ include "podium.cleanup" . }}
      {{- end }}
      - --policy=/etc/podium/policy.yaml
      - --state-dir=/var/lib/podium/state
      - --health-probe-bind-address=:8081
      - --metrics-bind-address=:{{ .Values.metrics.port }}
      {{- if not .Values.metrics.authentication }}
      - --metrics-authentication=off
      {{- end }}
      - --log-format={{ .Values.logFormat }}
      {{- with .Values.watchNamespace }}
      - --namespace={{ . }}
      {{- end }}
      {{- with .Values.extraArgs }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- if or .Values.traces.endpoint .Values.env }}
    env:
      {{- with .Values.traces.endpoint }}
      - name: OTEL_EXPORTER_OTLP_ENDPOINT
        value: {{ . | quote }}
      {{- end }}
      {{- with .Values.env }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
    {{- with .Values.envFrom }}
    envFrom:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- if not $check }}
    ports:
      - name: probes
        containerPort: 8081
      - name: metrics
        containerPort: {{ .Values.metrics.port }}
    # Five minutes for the compilation of plugins and the list of Pods on a slow node.
    startupProbe:
      httpGet:
        path: /healthz
        port: probes
      periodSeconds: 5
      timeoutSeconds: 5
      failureThreshold: 60
    # Of a host that waits for its API server too: a restart does not help it.
    livenessProbe:
      httpGet:
        path: /healthz
        port: probes
      periodSeconds: 20
      timeoutSeconds: 5
    readinessProbe:
      httpGet:
        path: /readyz
        port: probes
      periodSeconds: 5
      timeoutSeconds: 5
    {{- end }}
    resources:
      {{- toYaml .Values.resources | nindent 6 }}
    securityContext:
      {{- toYaml .Values.securityContext | nindent 6 }}
    volumeMounts:
      - name: policy
        mountPath: /etc/podium
        readOnly: true
      {{- if not $check }}
      - name: state
        mountPath: /var/lib/podium
      {{- end }}
      {{- with .Values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  - name: policy
    configMap:
      name: {{ $policy }}
  {{- if not $check }}
  - name: state
    {{- if .Values.persistence.enabled }}
    persistentVolumeClaim:
      claimName: {{ .Values.persistence.existingClaim | default (include "podium.host" .) }}
    {{- else }}
    emptyDir:
      sizeLimit: {{ .Values.persistence.size }}
    {{- end }}
  {{- end }}
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $nodes := deepCopy .Values.nodeSelector }}
{{- with .Values.image.architecture }}
{{- $_ := set $nodes "kubernetes.io/arch" . }}
{{- end }}
{{- with $nodes }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{ toYaml . | nindent 4 | trim }}
    labelSelector:
      matchLabels:
        {{- include "podium.selector" $.chart | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
