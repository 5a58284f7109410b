#!/bin/sh
# Installs the programs that the tests need, through apt where this user may. Writes .deps: "all" when nothing is missing, so
# that the tests fail rather than skip; nothing else.
set -u
cd "$(dirname "$0")/.." || exit 1
wanted="chromium:chromium chromedriver:chromium-driver socat:socat qemu-arm:qemu-user qemu-storage-daemon:qemu-system-common mkfs.ext4:e2fsprogs losetup:mount mkfs.xfs:xfsprogs python3:python3 strace:strace curl:curl wrk:wrk nginx:nginx-light prometheus:prometheus node:nodejs mosquitto:mosquitto mosquitto_sub:mosquitto-clients"
# What contestants of the laboratory need beside, programs and libraries. No test fails without them, and what this
# distribution's apt does not have is not asked for: what was not run says so.
lab="perf:linux-perf fio:fio cyclictest:rt-tests -luring:liburing-dev -ljemalloc:libjemalloc-dev -lmimalloc:libmimalloc-dev"
lacking() {
	for w in $lab; do
		case "$w" in
		-l*) echo 'int main(void) { return 0; }' | cc -x c - "${w%%:*}" -o /dev/null >/dev/null 2>&1 ;;
		*) command -v "${w%%:*}" >/dev/null 2>&1 ;;
		esac || printf '%s ' "${w##*:}"
	done
}
# Of those, what apt has; a package that it does not know would keep all others out.
offered() {
	for p in $(lacking); do apt-cache show "$p" 2>/dev/null | grep -q . && printf '%s ' "$p"; done
}
missing() {
	for w in $wanted; do command -v "${w%%:*}" >/dev/null 2>&1 || printf '%s ' "${w##*:}"; done
	for m in serial:serial requests:requests pymodbus:pymodbus pynmea2:nmea2; do
		# any Python will do that has the module; asked from elsewhere, since it takes a folder here of that name for one
		for py in "$PWD/.deps-python/bin/python3" python3 /usr/bin/python3 ""; do
			[ -n "$py" ] || { printf 'python3-%s ' "${m##*:}"; break; }
			(cd / && "$py" -c "import ${m%%:*}") >/dev/null 2>&1 && break
		done
	done
}
# Python's modules come from its own index where that can be reached: a distribution's pymodbus is often years old. They stay
# in this folder. Where there is no venv or no index, the distribution's packages have to do.
newest=.deps-python/.done
if [ ! -e "$newest" ] && python3 -c 'import venv' >/dev/null 2>&1; then
	python3 -m venv .deps-python >/dev/null 2>&1 &&
		.deps-python/bin/python3 -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 15 \
			pyserial requests 'pymodbus>=3.10' pynmea2 >/dev/null 2>&1 && : >"$newest" || rm -rf .deps-python
fi
# What reads exported tables is large, and there is no wheel of it for every machine: the tests that need it say when it is missing.
tables=.deps-python/.tables
if [ ! -e "$tables" ] && [ -x .deps-python/bin/python3 ]; then
	.deps-python/bin/python3 -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 15 --only-binary :all: \
		pandas pyarrow duckdb >/dev/null 2>&1 && : >"$tables"
fi
streams=.deps-python/.streams
if [ ! -e "$streams" ] && [ -x .deps-python/bin/python3 ]; then
	.deps-python/bin/python3 -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 15 nats-py >/dev/null 2>&1 && : >"$streams"
fi
need=$(missing)
if [ -n "$need$(offered)" ] && command -v apt-get >/dev/null 2>&1; then
	run=""
	[ "$(id -u)" = 0 ] || { command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null && run="sudo -n"; }
	if [ "$(id -u)" = 0 ] || [ -n "$run" ]; then
		# Packages of servers start them at once, for everybody who can reach the machine: not for a test.
		policy=/usr/sbin/policy-rc.d
		if [ -e "$policy" ]; then policy=""; else printf '#!/bin/sh\nexit 101\n' | $run tee "$policy" >/dev/null && $run chmod +x "$policy"; fi
		$run apt-get update -qq >/dev/null 2>&1
		need="$need$(offered)"
		echo "installing for the tests: $need"
		# shellcheck disable=SC2086 # a list of packages
		DEBIAN_FRONTEND=noninteractive $run apt-get install -y -qq --no-install-recommends $need >/dev/null 2>&1
		[ -z "$policy" ] || $run rm -f "$policy"
	fi
fi
case "$(missing)" in *python3-*) python3 -m pip install --quiet --user pyserial requests pymodbus pynmea2 >/dev/null 2>&1 ;; esac
# The page's tests look at it with axe-core where npm may fetch it; without it they say so.
if [ ! -e .deps-node/node_modules/axe-core/axe.min.js ] && command -v npm >/dev/null 2>&1; then
	npm install --silent --no-save --no-audit --no-fund --fetch-retries=1 --prefix .deps-node axe-core@4.14.1 >/dev/null 2>&1
fi
need=$(missing)
if [ -n "$need" ]; then
	echo "missing for some tests, which will be skipped: $need"
	: >.deps
else
	echo all >.deps
fi
less=$(lacking)
[ -z "$less" ] || echo "missing for contestants of the laboratory, which will not be run: $less"
