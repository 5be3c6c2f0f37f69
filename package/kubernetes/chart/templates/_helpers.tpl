{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- define "cay.labels" -}}
app.kubernetes.io/name: cay
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "cay.selector" -}}
app.kubernetes.io/name: cay
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cay.level" -}}
{{- .Values.requireLevel | default (eq .Values.isolation "user-namespace" | ternary "single" "root") }}
{{- end }}

{{- /* The name of the server of a pod: package/container.sh has the same rule. */ -}}
{{- define "cay.node" -}}
{{- printf "%s%c%c%c" .cell (add 97 (div .number 676)) (add 97 (mod (div .number 26) 26)) (add 97 (mod .number 26)) }}
{{- end }}

{{- define "cay.usesProfile" -}}
{{- if ne .Values.isolation "privileged" }}true{{ end }}
{{- end }}
