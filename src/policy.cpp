#include <zero/policy/detail/dynamic_loss_scaler.ipp>
#include <zero/policy/detail/require_scale.ipp>
