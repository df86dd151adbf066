{{- define "coldplate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "coldplate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "coldplate.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "coldplate.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "coldplate.selector" -}}
app.kubernetes.io/name: {{ include "coldplate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "coldplate.labels" -}}
{{ include "coldplate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "coldplate.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "coldplate.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "coldplate.image" -}}
{{- $repository := required "image.repository: must be set, because no image is published: build one from packaging/container (docs/install.md), push it to your registry, and name it here" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Whether something that is read belongs to root alone. */}}
{{- define "coldplate.needsRoot" -}}
{{- with .Values.privileges -}}
{{- if or .podResources .environments .podLogs .hostSysfs .privileged }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* What values contradict each other, in words. */}}
{{- define "coldplate.check" -}}
{{- with .Values -}}
{{- if and .privileges.environments (not .privileges.hostPID) }}{{ fail "privileges.environments: needs privileges.hostPID, the processes whose environments are read" }}{{ end -}}
{{- if and .privileges.podLogs (not .privileges.hostPID) }}{{ fail "privileges.podLogs: needs privileges.hostPID, the processes whose pods are named" }}{{ end -}}
{{- if and .networkPolicy.enabled .privileges.hostNetwork }}{{ fail "networkPolicy.enabled: has no effect on the network of a node; set privileges.hostNetwork to false" }}{{ end -}}
{{- if and .serviceMonitor.enabled .podMonitor.enabled }}{{ fail "podMonitor.enabled: each agent would be scraped twice; set only one of serviceMonitor and podMonitor" }}{{ end -}}
{{- if and .serviceMonitor.enabled (not .service.enabled) }}{{ fail "serviceMonitor.enabled: needs service.enabled, the service that it selects; or take the podMonitor" }}{{ end -}}
{{- if and .racks .racksConfigMap }}{{ fail "racksConfigMap: takes the place of racks; set one of them" }}{{ end -}}
{{- if and (eq .web.scheme "https") (not .web.configSecret) }}{{ fail "web.scheme: https needs web.configSecret, the secret with web.yml, a certificate and its key" }}{{ end -}}
{{- if and .nvidia.libraryDirectory (not .privileges.privileged) }}{{ fail "nvidia.libraryDirectory: needs privileges.privileged; without a runtime of NVIDIA's no other container may open the device nodes" }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* The configuration file without the identity of the node and its rack, which each node adds for itself. */}}
{{- define "coldplate.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := unset $config "node" -}}
{{- $_ := unset $config "rack" -}}
{{- $_ := set $config "state_dir" "/var/lib/coldplate" -}}
{{- $web := deepCopy (default dict $config.web) -}}
{{- $_ := set $web "listen" (list (printf ":%v" .Values.port)) -}}
{{- if .Values.web.configSecret }}{{ $_ := set $web "config_file" "/etc/coldplate/web/web.yml" }}{{ end -}}
{{- $_ := set $config "web" $web -}}
{{- if .Values.ruleFiles -}}
{{- $rules := deepCopy (default dict $config.rules) -}}
{{- $files := ternary $rules.files (list "builtin") (hasKey $rules "files") -}}
{{- $_ := set $rules "files" (append $files "/etc/coldplate/rules/*.yml") -}}
{{- $_ := set $config "rules" $rules -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The section `rack` of a rack: what holds for all, what is its own, its name and its peers. */}}
{{- define "coldplate.rack" -}}
{{- $section := mergeOverwrite (deepCopy (default dict .root.Values.config.rack)) (deepCopy .rack) -}}
{{- $_ := unset $section "nodes" -}}
{{- $_ := set $section "name" .name -}}
{{- if not (hasKey .rack "peers") -}}
{{- $peers := list -}}
{{- range .rack.nodes }}{{ $peers = append $peers (printf "%s:%v" . $.root.Values.port) }}{{ end -}}
{{- $_ := set $section "peers" $peers -}}
{{- end -}}
{{- toYaml (dict "rack" $section) -}}
{{- end -}}

{{- define "coldplate.monitorLabels" -}}
{{ include "coldplate.labels" . }}
{{- with .Values.monitor.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What is scraped, the same for both kinds of monitors. `job` and `instance` are those of the alerts that agents send, and nothing
tells two alerts of one thing apart: Alertmanager then takes the agent's and the server's for one. */}}
{{- define "coldplate.endpoint" -}}
port: metrics
path: {{ dig "web" "telemetry_path" "/metrics" .Values.config }}
scheme: {{ .Values.web.scheme }}
interval: {{ .Values.monitor.interval }}
scrapeTimeout: {{ .Values.monitor.scrapeTimeout }}
{{- range $key := list "tlsConfig" "basicAuth" "authorization" }}
{{- with index $.Values.monitor $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
relabelings:
- targetLabel: job
  replacement: coldplate
- sourceLabels: [__meta_kubernetes_pod_node_name]
  targetLabel: instance
  replacement: "$1:{{ .Values.port }}"
{{- with dig "node" "cluster" "" .Values.config }}
- targetLabel: cluster
  replacement: {{ . | quote }}
{{- end }}
- action: labeldrop
  regex: namespace|pod|container|service|endpoint
{{- with .Values.monitor.relabelings }}
{{ toYaml . }}
{{- end }}
{{- with .Values.monitor.metricRelabelings }}
metricRelabelings:
{{ toYaml . }}
{{- end }}
{{- end -}}
