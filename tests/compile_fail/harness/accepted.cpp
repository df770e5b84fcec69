// expect: zero: this type is refused
template <class T>
struct Refusing {
    static_assert(sizeof(T) > 1000,
                  "zero: this type is refused; write another; see 'docs' [here].");
};
int main() {
    Refusing<int> object;
}
