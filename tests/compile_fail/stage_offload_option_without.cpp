// expect: NoOptionsBecauseOffloadIsNotAmongThePolicies
#include "stage.hpp"

using Stage = zero::ZeroStage<1>;

int main() {
    Stage::Options const options{.offload = {.path = "/tmp"}};
    (void)options;
}
