{{- define "stoker.name" -}}
{{- printf "%s-%s" .root.Release.Name .part | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "stoker.selector" -}}
app.kubernetes.io/name: stoker
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "stoker.labels" -}}
{{ include "stoker.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "stoker.secret" -}}
{{- .Values.secret.existing | default (printf "%s-secret" .Release.Name) -}}
{{- end }}

{{- define "stoker.config" -}}
{{- .Values.control.config }}
{{- with .Values.control.agentCertificates }}
{{- if .mode }}
{{- include "stoker.once" (dict "root" $ "section" "agent_certificates" "value" "agentCertificates.mode") }}

[agent_certificates]
mode = {{ toJson .mode }}
life_s = {{ int64 .lifeSeconds }}
{{- end }}
{{- end }}
{{- with .Values.control.oidc }}
{{- if .issuer }}
{{- include "stoker.once" (dict "root" $ "section" "oidc" "value" "oidc.issuer") }}
{{- if not .audience }}{{ fail "control.oidc.audience is needed: what tokens must be for, such as [stoker]" }}{{ end }}
{{- if not .rights }}{{ fail "control.oidc.rights is needed: what each group may do, such as {operators: all}" }}{{ end }}

[oidc]
issuer = {{ toJson .issuer }}
audience = {{ toJson .audience }}
claim = {{ toJson .claim }}

[oidc.rights]
{{- range $group, $right := .rights }}
{{ toJson $group }} = {{ toJson $right }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "stoker.once" -}}
{{- if regexMatch (printf "(?m)^\\s*\\[\\s*%s\\b" .section) .root.Values.control.config }}
{{- fail (printf "control.config has [%s] already: give it there, or as control.%s" .section .value) }}
{{- end }}
{{- end }}

{{- define "stoker.image" -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) -}}
{{- end }}
