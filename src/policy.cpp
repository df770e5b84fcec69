#include <zero/policy/detail/dynamic_loss_scaler.ipp>
