# Completion of coldplate for bash: made by `coldplate render completion bash`.

_coldplate_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }

_coldplate_paths() {
    mapfile -t COMPREPLY < <(compgen "$1" -- "$cur")
    compopt -o filenames 2>/dev/null
}

_coldplate() {
    local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} at=coldplate i
    # `=` is a word of its own between an option and its value.
    if [[ $cur == '=' ]]; then
        cur=''
    elif [[ $before == '=' ]]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at ${COMP_WORDS[i]}" in
        'coldplate check' | 'coldplate compat-check' | 'coldplate doctor' | 'coldplate export' | 'coldplate import' | 'coldplate once' | 'coldplate pause' | 'coldplate record' | 'coldplate render' | 'coldplate render metrics' | 'coldplate render config-file' | 'coldplate render rules' | 'coldplate render dashboards' | 'coldplate render completion' | 'coldplate render man' | 'coldplate report' | 'coldplate rules' | 'coldplate rules check' | 'coldplate rules test' | 'coldplate rules backtest' | 'coldplate run' | 'coldplate simulate' | 'coldplate top') at="$at ${COMP_WORDS[i]}" ;;
        esac
    done
    COMPREPLY=()
    case "$at $before" in
    'coldplate check --config.file') _coldplate_paths -f; return ;;
    'coldplate check --backend') _coldplate_words 'auto nvml synthetic replay none'; return ;;
    'coldplate check --scenario') _coldplate_paths -f; return ;;
    'coldplate check --replay.speed') return ;;
    'coldplate check --path.sysfs') _coldplate_paths -d; return ;;
    'coldplate check --path.procfs') _coldplate_paths -d; return ;;
    'coldplate check --log.level') _coldplate_words 'debug info warn error'; return ;;
    'coldplate check --log.format') _coldplate_words 'logfmt json'; return ;;
    'coldplate check --expect') _coldplate_paths -f; return ;;
    'coldplate check --learn') _coldplate_paths -f; return ;;
    'coldplate check --only') return ;;
    'coldplate check --skip') return ;;
    'coldplate check --agent') _coldplate_words 'auto required none'; return ;;
    'coldplate check --http.config.file') _coldplate_paths -f; return ;;
    'coldplate check --timeout') return ;;
    'coldplate check --at') return ;;
    'coldplate doctor --config.file') _coldplate_paths -f; return ;;
    'coldplate doctor --url') return ;;
    'coldplate doctor --http.config.file') _coldplate_paths -f; return ;;
    'coldplate doctor --path.sysfs') _coldplate_paths -d; return ;;
    'coldplate doctor --path.procfs') _coldplate_paths -d; return ;;
    'coldplate doctor --path.rootfs') _coldplate_paths -d; return ;;
    'coldplate export -o' | 'coldplate export --out') _coldplate_paths -f; return ;;
    'coldplate export --format') _coldplate_words 'openmetrics csv csv-wide json parquet'; return ;;
    'coldplate export --metrics') return ;;
    'coldplate export --step') return ;;
    'coldplate export --start') return ;;
    'coldplate export --end') return ;;
    'coldplate export --config.file') _coldplate_paths -f; return ;;
    'coldplate import --prometheus') return ;;
    'coldplate import --http.config.file') _coldplate_paths -f; return ;;
    'coldplate import -o' | 'coldplate import --out') _coldplate_paths -f; return ;;
    'coldplate import --node') return ;;
    'coldplate import --start') return ;;
    'coldplate import --end') return ;;
    'coldplate import --interval') return ;;
    'coldplate import --match') return ;;
    'coldplate import --gpu') return ;;
    'coldplate once --config.file') _coldplate_paths -f; return ;;
    'coldplate once --backend') _coldplate_words 'auto nvml synthetic replay none'; return ;;
    'coldplate once --scenario') _coldplate_paths -f; return ;;
    'coldplate once --replay.speed') return ;;
    'coldplate once --path.sysfs') _coldplate_paths -d; return ;;
    'coldplate once --path.procfs') _coldplate_paths -d; return ;;
    'coldplate once --log.level') _coldplate_words 'debug info warn error'; return ;;
    'coldplate once --log.format') _coldplate_words 'logfmt json'; return ;;
    'coldplate once --format') _coldplate_words 'text openmetrics json'; return ;;
    'coldplate once --textfile') _coldplate_paths -f; return ;;
    'coldplate pause --config.file') _coldplate_paths -f; return ;;
    'coldplate pause --for') return ;;
    'coldplate record --delay') return ;;
    'coldplate record --duration') return ;;
    'coldplate record --interval') return ;;
    'coldplate record -o' | 'coldplate record --output') _coldplate_paths -f; return ;;
    'coldplate record --info') _coldplate_paths -f; return ;;
    'coldplate record --copy') _coldplate_paths -f; return ;;
    'coldplate record --config.file') _coldplate_paths -f; return ;;
    'coldplate record --backend') _coldplate_words 'auto nvml synthetic replay none'; return ;;
    'coldplate record --scenario') _coldplate_paths -f; return ;;
    'coldplate record --replay.speed') return ;;
    'coldplate record --path.sysfs') _coldplate_paths -d; return ;;
    'coldplate record --path.procfs') _coldplate_paths -d; return ;;
    'coldplate record --log.level') _coldplate_words 'debug info warn error'; return ;;
    'coldplate record --log.format') _coldplate_words 'logfmt json'; return ;;
    'coldplate render metrics --out') _coldplate_paths -f; return ;;
    'coldplate render config-file --out') _coldplate_paths -f; return ;;
    'coldplate render rules --out') _coldplate_paths -d; return ;;
    'coldplate render rules --runbook-base') return ;;
    'coldplate render rules --interval-at-least') return ;;
    'coldplate render rules --config.file') _coldplate_paths -f; return ;;
    'coldplate render dashboards --out') _coldplate_paths -d; return ;;
    'coldplate render dashboards --datasource') return ;;
    'coldplate render dashboards --label') return ;;
    'coldplate render dashboards --prefix') return ;;
    'coldplate render completion --out') _coldplate_paths -f; return ;;
    'coldplate render man --out') _coldplate_paths -d; return ;;
    'coldplate report --compare') return ;;
    'coldplate report --html') _coldplate_paths -f; return ;;
    'coldplate report --rules') _coldplate_paths -f; return ;;
    'coldplate rules check --profile') _coldplate_words 'none lean default full'; return ;;
    'coldplate rules backtest --rules') _coldplate_paths -f; return ;;
    'coldplate rules backtest --against') _coldplate_paths -f; return ;;
    'coldplate rules backtest --config.file') _coldplate_paths -f; return ;;
    'coldplate run --config.file') _coldplate_paths -f; return ;;
    'coldplate run --backend') _coldplate_words 'auto nvml synthetic replay none'; return ;;
    'coldplate run --scenario') _coldplate_paths -f; return ;;
    'coldplate run --replay.speed') return ;;
    'coldplate run --path.sysfs') _coldplate_paths -d; return ;;
    'coldplate run --path.procfs') _coldplate_paths -d; return ;;
    'coldplate run --log.level') _coldplate_words 'debug info warn error'; return ;;
    'coldplate run --log.format') _coldplate_words 'logfmt json'; return ;;
    'coldplate run --web.listen-address') return ;;
    'coldplate run --web.config.file') _coldplate_paths -f; return ;;
    'coldplate run --web.telemetry-path') return ;;
    'coldplate simulate --nodes') return ;;
    'coldplate simulate --nodes-per-rack') return ;;
    'coldplate simulate --topology') return ;;
    'coldplate simulate --scenario') _coldplate_paths -f; return ;;
    'coldplate simulate --nodes-per-job') return ;;
    'coldplate simulate --rack-budget') return ;;
    'coldplate simulate --cluster') return ;;
    'coldplate simulate --fault') return ;;
    'coldplate simulate --seed') return ;;
    'coldplate simulate --interval') return ;;
    'coldplate simulate --metrics.profile') _coldplate_words 'none lean default full'; return ;;
    'coldplate simulate --duration') return ;;
    'coldplate simulate --web.listen-address') return ;;
    'coldplate simulate --web.config.file') _coldplate_paths -f; return ;;
    'coldplate simulate --log.level') _coldplate_words 'debug info warn error'; return ;;
    'coldplate simulate --log.format') _coldplate_words 'logfmt json'; return ;;
    'coldplate top --config.file') _coldplate_paths -f; return ;;
    'coldplate top --backend') _coldplate_words 'auto nvml synthetic replay none'; return ;;
    'coldplate top --scenario') _coldplate_paths -f; return ;;
    'coldplate top --replay.speed') return ;;
    'coldplate top --path.sysfs') _coldplate_paths -d; return ;;
    'coldplate top --path.procfs') _coldplate_paths -d; return ;;
    'coldplate top --log.level') _coldplate_words 'debug info warn error'; return ;;
    'coldplate top --log.format') _coldplate_words 'logfmt json'; return ;;
    'coldplate top --interval') return ;;
    'coldplate top --url') return ;;
    'coldplate top --http.config.file') _coldplate_paths -f; return ;;
    esac
    case "$at" in
    'coldplate') if [[ $cur == -* ]]; then _coldplate_words '-h --help --version'; else _coldplate_words 'check compat-check doctor export import once pause record render report rules run simulate top'; fi ;;
    'coldplate check') if [[ $cur == -* ]]; then _coldplate_words '-h --help --config.file --backend --scenario --replay.speed --replay.loop --path.sysfs --path.procfs --log.level --log.format --expect --learn --only --skip --agent --http.config.file --timeout --at --verbose --json'; else :; fi ;;
    'coldplate compat-check') if [[ $cur == -* ]]; then _coldplate_words '-h --help --json'; else _coldplate_paths -f; fi ;;
    'coldplate doctor') if [[ $cur == -* ]]; then _coldplate_words '-h --help --config.file --json --url --http.config.file --path.sysfs --path.procfs --path.rootfs'; else :; fi ;;
    'coldplate export') if [[ $cur == -* ]]; then _coldplate_words '-h --help -o --out --format --metrics --step --start --end --config.file'; else _coldplate_paths -f; fi ;;
    'coldplate import') if [[ $cur == -* ]]; then _coldplate_words '-h --help --prometheus --http.config.file -o --out --node --start --end --interval --match --gpu --utc'; else _coldplate_paths -f; fi ;;
    'coldplate once') if [[ $cur == -* ]]; then _coldplate_words '-h --help --config.file --backend --scenario --replay.speed --replay.loop --path.sysfs --path.procfs --log.level --log.format --format --textfile'; else :; fi ;;
    'coldplate pause') if [[ $cur == -* ]]; then _coldplate_words '-h --help --config.file --for --end'; else :; fi ;;
    'coldplate record') if [[ $cur == -* ]]; then _coldplate_words '-h --help --delay --duration --interval -o --output --redact --no-redact --if-asked --allow-no-gpu --info --copy --config.file --backend --scenario --replay.speed --replay.loop --path.sysfs --path.procfs --log.level --log.format'; else :; fi ;;
    'coldplate render') if [[ $cur == -* ]]; then _coldplate_words '-h --help'; else _coldplate_words 'metrics config-file rules dashboards completion man'; fi ;;
    'coldplate render metrics') if [[ $cur == -* ]]; then _coldplate_words '-h --help --out'; else :; fi ;;
    'coldplate render config-file') if [[ $cur == -* ]]; then _coldplate_words '-h --help --out'; else :; fi ;;
    'coldplate render rules') if [[ $cur == -* ]]; then _coldplate_words '-h --help --out --runbook-base --interval-at-least --for-shard --config.file'; else :; fi ;;
    'coldplate render dashboards') if [[ $cur == -* ]]; then _coldplate_words '-h --help --out --datasource --label --prefix'; else :; fi ;;
    'coldplate render completion') if [[ $cur == -* ]]; then _coldplate_words '-h --help --out'; else _coldplate_words 'bash zsh fish'; fi ;;
    'coldplate render man') if [[ $cur == -* ]]; then _coldplate_words '-h --help --out'; else :; fi ;;
    'coldplate report') if [[ $cur == -* ]]; then _coldplate_words '-h --help --compare --html --json --rules'; else _coldplate_paths -f; fi ;;
    'coldplate rules') if [[ $cur == -* ]]; then _coldplate_words '-h --help'; else _coldplate_words 'check test backtest'; fi ;;
    'coldplate rules check') if [[ $cur == -* ]]; then _coldplate_words '-h --help --profile'; else _coldplate_paths -f; fi ;;
    'coldplate rules test') if [[ $cur == -* ]]; then _coldplate_words '-h --help'; else _coldplate_paths -f; fi ;;
    'coldplate rules backtest') if [[ $cur == -* ]]; then _coldplate_words '-h --help --rules --against --pending --json --config.file'; else _coldplate_paths -f; fi ;;
    'coldplate run') if [[ $cur == -* ]]; then _coldplate_words '-h --help --config.file --backend --scenario --replay.speed --replay.loop --path.sysfs --path.procfs --log.level --log.format --config.check --web.listen-address --web.config.file --web.telemetry-path --web.enable-lifecycle'; else :; fi ;;
    'coldplate simulate') if [[ $cur == -* ]]; then _coldplate_words '-h --help --nodes --nodes-per-rack --topology --scenario --nodes-per-job --rack-budget --cluster --fault --seed --interval --metrics.profile --duration --web.listen-address --web.config.file --log.level --log.format'; else _coldplate_paths -f; fi ;;
    'coldplate top') if [[ $cur == -* ]]; then _coldplate_words '-h --help --config.file --backend --scenario --replay.speed --replay.loop --path.sysfs --path.procfs --log.level --log.format --interval --url --http.config.file --rack --no-attach --once --json --csv --ascii --no-mouse'; else :; fi ;;
    esac
}

complete -F _coldplate coldplate
