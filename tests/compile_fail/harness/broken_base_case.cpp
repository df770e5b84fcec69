// compiles
int main() {
    return missing;
}
