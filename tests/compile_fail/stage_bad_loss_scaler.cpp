// expect: zero: a LossScaler needs 'static State next(State, bool overflow, Options const&) noexcept'.
#include "stage.hpp"

struct Thermostat {
    using policy_category = zero::LossScalerCategory;
    struct Options {};
    struct State {
        float scale = 1.0F;
    };
    static constexpr bool skips_overflow = true;
    static void validate(Options const&) {}
    static State initial(Options const&) { return {}; }
    static bool is_exhausted(State, Options const&) noexcept { return false; }
};

using Stage = zero::ZeroStage<3, Thermostat>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
