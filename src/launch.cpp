#include <zero/launch/detail/environment.ipp>
