"""Rules for the way between this host and the server of a file."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, GENERIC, Near, Rule
from controlpanel.llamacpp.rules_build_changes import define

_GAVE_UP = ("download_gave_up",)

NET_RULES = (
    Rule(
        "built_without_tls",
        (
            r"HTTPS is not supported\. Please rebuild with",
            r"built without (?:CURL|SSL|HTTPS)",
            r"unsupported URL scheme: https",
        ),
        N_("This llama-server was built without TLS: it cannot download by itself"),
        N_(
            "Install the headers of OpenSSL on the host (“apt install libssl-dev”) and build again, or "
            "download the model on the Models page and choose the file: then the server needs no download."
        ),
        define(("LLAMA_OPENSSL", "ON")),
        explains=_GAVE_UP,
    ),
    Rule(
        "tls_certificate",
        (
            r"CERTIFICATE_VERIFY_FAILED",
            r"SSL certificate problem: ",
            r"(?:SSL|TLS|peer)\W{1,3}certificate verif\w+ (?:failed|error)",
            r"invalid peer certificate",
            r"unable to get local issuer certificate",
            r"SSL server verification failed",
        ),
        N_("The server's TLS certificate is not accepted"),
        N_(
            "Check this host's clock first. If only this server fails, its certificate may have expired: "
            "wait or use another source. If all fail, install the CA certificates (“apt install "
            "ca-certificates”); behind a proxy that opens connections, add its certificate to them. A token "
            "does not help."
        ),
        explains=(*_GAVE_UP, "host_unreachable"),
    ),
    Rule(
        "host_unresolved",
        (
            r"Name or service not known",
            r"Temporary failure in name resolution",
            r"Failed to resolve '(?P<host>[^']*)'",
            r"Could not resolve host(?:name)?: (?P<host>[^\s;]+)",
            r"unable to resolve host address",
            r"nodename nor servname provided",
            r"dns error: failed to lookup address",
            r"No address associated with hostname",
        ),
        N_("The server's name cannot be resolved"),
        N_(
            "Check the address for typing errors. If it is right, this host has no working DNS or no way to "
            "the internet: check its network, and the proxy variables of the panel's environment. For a "
            "mirror, check HF_ENDPOINT."
        ),
        explains=(*_GAVE_UP, "host_unreachable"),
    ),
    Rule(
        "proxy_refused",
        (
            r"407 Proxy Authentication Required",
            r"ProxyError\(",
            r"Tunnel connection failed: \d+",
            r"Received HTTP code \d+ from proxy after CONNECT",
            r"Cannot connect to proxy",
        ),
        N_("The proxy refuses the connection"),
        N_(
            "Check https_proxy and no_proxy in the panel's environment: address, port, name and password of "
            "the proxy, and whether it lets the hub and its storage hosts through."
        ),
        explains=(*_GAVE_UP, "host_unreachable"),
    ),
    Rule(
        "host_unreachable",
        (
            r"Connection refused",
            r"Network is unreachable",
            r"No route to host",
            r"ConnectTimeout(?:Error)?\b",
            r"Failed to connect to (?P<host>\S+)",
            r"connect\w*: Connection timed out",
            r"All connection attempts failed",
        ),
        N_("The server cannot be reached from this host"),
        N_(
            "Check that the host may connect to it (firewall, VPN, proxy variables of the panel's "
            "environment), then resume the download."
        ),
        rank=COMMON + 5,
        explains=_GAVE_UP,
    ),
    Rule(
        "transfer_interrupted",
        (
            r"Read timed out",
            r"ReadTimeout(?:Error)?\b",
            r"IncompleteRead\(",
            r"Connection reset by peer",
            r"Connection broken: ",
            r"peer closed connection without sending complete message body",
            r"transfer closed with \d+ bytes remaining",
            r"Server disconnected without sending a response",
        ),
        N_("The connection broke or stood still during the download"),
        N_(
            "Resume the download: what is there is kept. If it happens again and again, lower the number of "
            "connections, or set a limit to the speed."
        ),
        rank=COMMON,
        explains=_GAVE_UP,
    ),
    Rule(
        "xet_failed",
        (
            r"Data processing error: CAS",
            r"CAS (?:service|Client|client) [Ee]rror",
            r"hf_xet\S*Error",
        ),
        N_("The hub's chunk storage (Xet) failed"),
        N_(
            "Set HF_HUB_DISABLE_XET=1 in the environment of that program and try again, or download the file "
            "on the Models page, which does not use it."
        ),
        explains=(*_GAVE_UP, "transfer_interrupted", "hub_down", "http_forbidden"),
        unless=(r"No space left",),
    ),
    Rule(
        "hf_offline",
        (
            r"offline mode is enabled",
            r"HF_HUB_OFFLINE=1",
            r"not available in cache \(offline mode\)",
        ),
        N_("The program was told to work offline"),
        N_("Take HF_HUB_OFFLINE or --offline away, or put the file in place before the start."),
        explains=_GAVE_UP,
    ),
    Rule(
        "supervisor_timeout",
        (
            r"cmdStopUpstreamProcess\(\) initiating graceful stop",
            r"health check timed out after (?P<seconds>\d+)",
        ),
        N_("The server was stopped while it was still downloading its model"),
        N_(
            "Whoever supervises it (llama-swap: healthCheckTimeout) waited less long than the download "
            "takes. Download the model on the Models page before the first start, or raise that limit."
        ),
        with_=(Near(r"start\w*: .{0,600}\s-(?:hf|hfr|-hf-repo|mu|-model-url)\s", before=30),),
    ),
    Rule(
        "download_gave_up",
        (
            r"download failed after (?P<attempts>\d+) attempts",
            r"error: failed to download model from Hugging Face",
            r"LocalEntryNotFoundError",
        ),
        N_("The download was given up after several attempts"),
        N_(
            "The log does not say why. Check the connection of this host, look at the hub's status page, and "
            "resume the download."
        ),
        rank=GENERIC,
    ),
)
