"""UpdateFeatures (key 57), versions 0-2.

Behaviour: sets finalised feature levels, all of them or none. Lowering a level needs a downgrade
type (version 0: allow_downgrade). With validate_only nothing is written.

Versions: 1 adds upgrade types and validate_only. Before version 2 a successful response lists each
feature.

Errors: INVALID_UPDATE_VERSION (a node does not support the level, a dependency does not hold, a
downgrade that was not allowed), INVALID_REQUEST (named twice), REQUEST_TIMED_OUT, NOT_CONTROLLER.
"""

from __future__ import annotations

from controller.configs.features import FeatureUpdate, UpgradeType, decide_update_features
from controller.elections.min_isr import clearing_elr
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from runtime.log import get_logger

_log = get_logger("controller.features")

MIN_VERSION = 0
MAX_VERSION = 2


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: UpdateFeaturesRequest) -> Reply:
        version = context.api_version
        updates = [_update(version, update) for update in request.feature_updates]

        def respond(strands: str | None) -> UpdateFeaturesResponse:
            if strands is not None and not request.validate_only:
                _log.warning("Eligible leader replicas are off", stranded=strands)
            return _response(version, updates, None)

        return controller.submit(
            clearing_elr(
                lambda view: decide_update_features(
                    view, updates, validate_only=request.validate_only
                )
            ),
            respond,
            fail=lambda error: _response(version, updates, error),
            timeout_ms=request.timeout_ms,
        )

    table.register(ApiKey.UPDATE_FEATURES, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)


_ONE_FAILED = "The update failed for all features since the following feature had an error"


def _update(version: int, update: UpdateFeaturesRequest.FeatureUpdateKey) -> FeatureUpdate:
    upgrade_type = update.upgrade_type
    if version == 0:
        down = update.allow_downgrade
        upgrade_type = UpgradeType.SAFE_DOWNGRADE if down else UpgradeType.UPGRADE
    return FeatureUpdate(update.feature, update.max_version_level, upgrade_type)


def _response(
    version: int, updates: list[FeatureUpdate], error: ApiError | None
) -> UpdateFeaturesResponse:
    code = 0 if error is None else error.code
    message = None if error is None else error.text
    if code == ErrorCode.INVALID_UPDATE_VERSION:
        message = f"{_ONE_FAILED}: {message}"
    response = UpdateFeaturesResponse(error_code=code, error_message=message)
    if version < 2 and error is None:
        response.results = [
            UpdateFeaturesResponse.UpdatableFeatureResult(feature=update.name, error_message="NONE")
            for update in updates
        ]
    return response
