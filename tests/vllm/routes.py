"""The engine's own list of routes against the router's: each is served, or left out knowingly."""

import wire
from report import expect, same

# Pages about the engine, and what belongs to one trainer or supervisor and its engine.
LEFT_OUT = {
    "/metrics",
    "/docs",
    "/openapi.json",
    "/adapters",
    "/adapters/{adapter_name}",
    "/collective_rpc",
    "/scale_elastic_ep",
    "/is_scaling_elastic_ep",
    "/fault_tolerance/apply",
    "/fault_tolerance/status",
    "/init_weight_transfer_engine",
    "/shutdown_weight_transfer_engine",
    "/start_weight_update",
    "/start_draft_weight_update",
    "/update_weights",
    "/finish_weight_update",
    "/update_weight_version",
    "/weight_info",
    "/weight_checker",
    "/get_world_size",
}


def is_served(port, method, path):
    """Whether the router has the route; a call without a model or an engine reaches nobody."""
    answer = wire.ask(port, method, path.replace("{response_id}", "none"), {})
    if answer.status not in (404, 405):
        return True
    error = answer.json().get("error", {})
    return error.get("code") not in ("not_found", "method_not_allowed")


def every_one(run, router, engine):
    public, admin, left_out = [], [], []
    for path, methods in wire.ask(engine.port, "GET", "/openapi.json").json()["paths"].items():
        for method in map(str.upper, methods):
            route = f"{method} {path}"
            if path in LEFT_OUT:
                places = left_out
            elif is_served(router.port, method, path):
                places = public
            else:
                places = admin
                expect(is_served(router.admin, method, path), f"{route} is served nowhere")
            places.append(route)
    expect("POST /v1/chat/completions" in public, f"public: {public}")
    load = wire.ask(router.admin, "GET", "/load?all=true")
    same(load.status, 200, "/load of all engines")
    same(
        load.json()["engines"],
        [{"engine": engine.url, "status": 200, "body": {"server_load": 0}}],
        "/load of all engines",
    )
    return f"{len(public)} public, {len(admin)} on the admin port, {len(left_out)} left out"
