// expect: zero: a Communicator needs 'void abort(
// nvcc
#include "stage.hpp"

#include "communicator.hpp"

struct Telegraph : Operations {
    void abort(std::string_view cause, bool is_provisional); // must be noexcept
};

using Stage = zero::ZeroStage<2, Telegraph>;

int main() {
    Telegraph telegraph;
    train<Stage>(telegraph);
}
